"""Settings for all tests. On CI, hypothesis tries the same examples each time: red must mean a changed program."""

import os

import hypothesis

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
hypothesis.settings.register_profile("here", deadline=None)  # a busy machine is no fault of the program
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "here")
