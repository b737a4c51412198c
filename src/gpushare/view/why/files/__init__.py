"""`why -f`: pods that exist only in a file. What would the API server make of them, and would they fit?"""
