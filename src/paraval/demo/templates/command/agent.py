"""The program that suite.yaml tests. Put your own in its place."""

import argparse
import time

parser = argparse.ArgumentParser()
parser.add_argument("--style", default="plain")
parser.add_argument("prompt")
arguments = parser.parse_args()

time.sleep(0.5)  # A model would think here.
wanted = arguments.prompt.removeprefix("Say ").rstrip(".")
print(f"Dear reader, {wanted}!" if arguments.style == "polite" else wanted)
