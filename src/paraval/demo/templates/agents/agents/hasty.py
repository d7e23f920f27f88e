"""Makes the first change that the model asks for, and calls it a day."""

import sys

from little import Conversation

conversation = Conversation(*sys.argv[1:])
conversation.ask()
conversation.end("Done.")
