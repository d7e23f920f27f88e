"""Rubrics for common questions: `judge: {preset: factuality}`.

A rubric's text is part of every trial's key, so a change here is a change of the grader.
"""

from __future__ import annotations

PRESETS = {
    "factuality": """\
Compare the facts of "answer" with those of "reference". Take the reference as true and \
complete for what "input" asks, also where you know otherwise. Style, order, length, language \
and format don't matter.
1: the answer states every fact of the reference, and contradicts none. Other wording, \
rounding that changes nothing, and more detail that does not contradict the reference are \
fine.
0.5: it states some of the facts and contradicts none.
0: it contradicts a fact of the reference, states none of them, names several possibilities \
without choosing one, or does not answer.""",
    "faithfulness": """\
Check every claim of "answer" against "context". Only the context counts: what you know, and \
what "input" asserts, support nothing. Whether the answer is complete or well written doesn't \
matter.
1: the context states or directly implies every claim. An answer that only says that the \
context does not have the information makes no claim, and scores 1 if that is so.
0.5: the main claims are supported; a minor one, which the context does not contradict, is \
not.
0: the context contradicts a claim, or the main claim is not in it.""",
    "relevance": """\
Judge whether "answer" addresses what "input" asks. If there is a "context", it is the \
material that the answer was to use. Whether the claims are true doesn't matter.
1: the answer addresses every part of the question, with what matters of the context, and \
little else.
0.5: it addresses a part of the question, or much of it is beside the point.
0: it is about something else, ignores the context where the question is about it, or does not \
answer.""",
    "instruction_following": """\
Judge whether "answer" does what "input" tells it to do. List to yourself every instruction of \
the input that can be checked: the task, format, length, language, tone, what to include and \
what to leave out. Whether the content is true doesn't matter unless an instruction asks for \
it. If there is a "reference", it is one answer that follows them all; others may too.
1: the answer follows every instruction.
0.5: it does the main task and breaks a minor instruction.
0: it does not do the task, breaks an instruction that is stated as a must, or refuses without \
a cause.""",
}
"""Name -> rubric."""
NEEDS_EXPECT = frozenset({"factuality"})
NEEDS_CONTEXT = frozenset({"faithfulness"})
USES_CONTEXT = frozenset({"faithfulness", "relevance"})
