"""Who somebody is and what they may do, as the API server says: for components that others ask over HTTP.

`reviews` are the two questions, `bearers` keeps what was answered about a token for a short time.
"""
