"""Objects as rows of a table: what `kubectl get` shows is made by the server."""
