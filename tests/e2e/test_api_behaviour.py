"""The behaviour tests of the embedded API server, the very same functions, against the real one: neither may drift."""

from tests.devcluster import test_api_behaviour, test_api_behaviour_lists, test_api_behaviour_pods

for _module in (test_api_behaviour, test_api_behaviour_lists, test_api_behaviour_pods):
    for _name, _test in vars(_module).items():
        if _name.startswith("test_") and callable(_test):
            assert _name not in globals(), f"two tests are called {_name}: one would be lost"
            globals()[_name] = _test
