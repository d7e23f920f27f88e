"""The records that pass between stages: frozen, keyword-only, without live handles.

Each can be pickled, stored, and sent to another machine. In the order of a run: the request (Case,
Target, Trial, Plan), the results (AttemptResult, TrialResult, RunInfo), and the events that
observers receive.
"""

from paraval.records.events import (
    AttemptEnded as AttemptEnded,
    AttemptStarted as AttemptStarted,
    Capacity as Capacity,
    Happening as Happening,
    Notice as Notice,
    RunEnded as RunEnded,
    RunInfo as RunInfo,
    RunStarted as RunStarted,
    TrialEnded as TrialEnded,
    TrialSkipped as TrialSkipped,
)
from paraval.records.outcomes import (
    Failure as Failure,
    Grade as Grade,
    Outcome as Outcome,
    Output as Output,
)
from paraval.records.plan import (
    EARLY_STOP as EARLY_STOP,
    WORKSPACE_NEED as WORKSPACE_NEED,
    Baseline as Baseline,
    Budget as Budget,
    CacheUse as CacheUse,
    Case as Case,
    GraderSpec as GraderSpec,
    Grading as Grading,
    Limits as Limits,
    Plan as Plan,
    RetryPolicy as RetryPolicy,
    StopRule as StopRule,
    Trial as Trial,
    Workspace as Workspace,
    WorkspaceKind as WorkspaceKind,
    lock_need as lock_need,
)
from paraval.records.results import (
    PATCH as PATCH,
    AccountUse as AccountUse,
    Activity as Activity,
    Attempt as Attempt,
    AttemptLoad as AttemptLoad,
    AttemptRecord as AttemptRecord,
    AttemptResult as AttemptResult,
    Change as Change,
    FileChange as FileChange,
    MachineReading as MachineReading,
    McpState as McpState,
    RateTold as RateTold,
    Spend as Spend,
    ToolUse as ToolUse,
    TrialResult as TrialResult,
    spent_together as spent_together,
)
from paraval.records.targets import (
    AccountLimits as AccountLimits,
    AgentTarget as AgentTarget,
    ChatTarget as ChatTarget,
    CommandTarget as CommandTarget,
    CustomAgent as CustomAgent,
    FunctionTarget as FunctionTarget,
    Home as Home,
    McpServer as McpServer,
    Message as Message,
    Model as Model,
    OutputForm as OutputForm,
    Price as Price,
    Provider as Provider,
    Reads as Reads,
    Scalar as Scalar,
    Target as Target,
    TargetLimits as TargetLimits,
    Variant as Variant,
    account_need as account_need,
    model_need as model_need,
    value_text as value_text,
)
