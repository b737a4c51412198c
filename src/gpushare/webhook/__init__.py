"""`gpushare webhook`: admission for clusters without admission policies, and answers that policies cannot give.

What it does to a pod is decided in `core/admission`. This folder has the rest: AdmissionReviews over HTTPS, the
certificates it makes and renews itself, and its registration with the API server.
"""
