def delivery_days(country: str) -> int:
    return 2 if country == "NL" else 5


def vat_rate(country: str) -> float:
    return {"NL": 0.21, "DE": 0.19}.get(country, 0.2)
