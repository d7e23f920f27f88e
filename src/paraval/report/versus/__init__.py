"""One run, or a part of one, held against another: is it better, and which cases changed."""
