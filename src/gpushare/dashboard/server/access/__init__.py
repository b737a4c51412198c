"""Who asks. `local` is a person at this machine with a link from the terminal, `reviewed` somebody whom the API server
knows. Both give a `sessions.Session`, and say which namespaces its owner may see."""
