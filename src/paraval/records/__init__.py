"""The nouns that cross from stage to stage: frozen, keyword-only, without live handles.

Each can be pickled, stored, and sent to another machine. What they mean is told in the order of a
run: what is asked (Case, Target, Trial, Plan), what happened (AttemptResult, TrialResult, RunInfo),
and what an observer is told meanwhile.
"""

from paraval.records.events import (
    AttemptEnded as AttemptEnded,
)
from paraval.records.events import (
    AttemptStarted as AttemptStarted,
)
from paraval.records.events import (
    Capacity as Capacity,
)
from paraval.records.events import (
    Happening as Happening,
)
from paraval.records.events import (
    Notice as Notice,
)
from paraval.records.events import (
    RunEnded as RunEnded,
)
from paraval.records.events import (
    RunInfo as RunInfo,
)
from paraval.records.events import (
    RunStarted as RunStarted,
)
from paraval.records.events import (
    TrialEnded as TrialEnded,
)
from paraval.records.events import (
    TrialSkipped as TrialSkipped,
)
from paraval.records.outcomes import (
    Failure as Failure,
)
from paraval.records.outcomes import (
    Grade as Grade,
)
from paraval.records.outcomes import (
    Outcome as Outcome,
)
from paraval.records.outcomes import (
    Output as Output,
)
from paraval.records.plan import (
    EARLY_STOP as EARLY_STOP,
)
from paraval.records.plan import (
    WORKSPACE_NEED as WORKSPACE_NEED,
)
from paraval.records.plan import (
    Baseline as Baseline,
)
from paraval.records.plan import (
    Budget as Budget,
)
from paraval.records.plan import (
    CacheUse as CacheUse,
)
from paraval.records.plan import (
    Case as Case,
)
from paraval.records.plan import (
    GraderSpec as GraderSpec,
)
from paraval.records.plan import (
    Grading as Grading,
)
from paraval.records.plan import (
    Limits as Limits,
)
from paraval.records.plan import (
    Plan as Plan,
)
from paraval.records.plan import (
    RetryPolicy as RetryPolicy,
)
from paraval.records.plan import (
    StopRule as StopRule,
)
from paraval.records.plan import (
    Trial as Trial,
)
from paraval.records.plan import (
    Workspace as Workspace,
)
from paraval.records.plan import (
    WorkspaceKind as WorkspaceKind,
)
from paraval.records.plan import (
    lock_need as lock_need,
)
from paraval.records.results import (
    PATCH as PATCH,
)
from paraval.records.results import (
    AccountUse as AccountUse,
)
from paraval.records.results import (
    Activity as Activity,
)
from paraval.records.results import (
    Attempt as Attempt,
)
from paraval.records.results import (
    AttemptLoad as AttemptLoad,
)
from paraval.records.results import (
    AttemptRecord as AttemptRecord,
)
from paraval.records.results import (
    AttemptResult as AttemptResult,
)
from paraval.records.results import (
    Change as Change,
)
from paraval.records.results import (
    FileChange as FileChange,
)
from paraval.records.results import (
    MachineReading as MachineReading,
)
from paraval.records.results import (
    McpState as McpState,
)
from paraval.records.results import (
    RateTold as RateTold,
)
from paraval.records.results import (
    Spend as Spend,
)
from paraval.records.results import (
    ToolUse as ToolUse,
)
from paraval.records.results import (
    TrialResult as TrialResult,
)
from paraval.records.results import (
    spent_together as spent_together,
)
from paraval.records.targets import (
    AccountLimits as AccountLimits,
)
from paraval.records.targets import (
    AgentTarget as AgentTarget,
)
from paraval.records.targets import (
    ChatTarget as ChatTarget,
)
from paraval.records.targets import (
    CommandTarget as CommandTarget,
)
from paraval.records.targets import (
    CustomAgent as CustomAgent,
)
from paraval.records.targets import (
    FunctionTarget as FunctionTarget,
)
from paraval.records.targets import (
    Home as Home,
)
from paraval.records.targets import (
    McpServer as McpServer,
)
from paraval.records.targets import (
    Message as Message,
)
from paraval.records.targets import (
    Model as Model,
)
from paraval.records.targets import (
    OutputForm as OutputForm,
)
from paraval.records.targets import (
    Price as Price,
)
from paraval.records.targets import (
    Provider as Provider,
)
from paraval.records.targets import (
    Reads as Reads,
)
from paraval.records.targets import (
    Scalar as Scalar,
)
from paraval.records.targets import (
    Target as Target,
)
from paraval.records.targets import (
    TargetLimits as TargetLimits,
)
from paraval.records.targets import (
    Variant as Variant,
)
from paraval.records.targets import (
    account_need as account_need,
)
from paraval.records.targets import (
    model_need as model_need,
)
from paraval.records.targets import (
    value_text as value_text,
)
