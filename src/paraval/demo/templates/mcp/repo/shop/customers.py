def is_regular(orders: int) -> bool:
    return orders >= 10


def with_discount(price: float, orders: int) -> float:
    return price * 0.9 if is_regular(orders) else price
