"""Two sides compared: is one better, by how much, and how sure is that?"""
