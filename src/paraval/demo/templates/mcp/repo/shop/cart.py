from dataclasses import field

from paraval.dataclass import dataclass


@dataclass
class Cart:
    items: list[tuple[str, float]] = field(default_factory=list)


def add_item(cart: Cart, name: str, price: float) -> None:
    cart.items.append((name, price))


def total(cart: Cart) -> float:
    return sum(price for _, price in cart.items)
