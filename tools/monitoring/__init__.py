"""What deploy/monitoring is made from: alerts (`rules`), boards (`boards`), and how to scrape (`scraping`).

These are tables for people to read and change. `grafana` turns a board into Grafana's JSON;
`tools/render_monitoring.py` writes the files.
"""
