"""Mail with one right label. Each test waits for the model once."""

import pytest
import triage

MAIL = {
    "billing": ["The invoice {n} has the wrong address.", "You charged twice for order {n}."],
    "delivery": ["Where is parcel {n}?", "Parcel {n} went to my neighbour."],
    "returns": ["I want to send back order {n}.", "The cup of order {n} is broken."],
    "praise": ["Order {n} was perfect, thank you!"],
}
CASES = [
    (label, text.format(n=n)) for label, texts in MAIL.items() for text in texts for n in range(5)
]


@pytest.mark.parametrize(("label", "mail"), CASES)
def test_label(label, mail, record_score):
    answer = triage.sort(mail)
    record_score(answer["confidence"], "conf")
    assert answer["label"] == label
