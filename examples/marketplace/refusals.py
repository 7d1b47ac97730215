"""What the shop says no to. The HTTP side turns each into a problem document.

Refusal
├── ProductNotFound, OrderNotFound      404
├── NotAllowed                          403
└── ProductSold, WrongStatus            409
"""

from typing import ClassVar


class Refusal(Exception):
    status: ClassVar[int] = 400
    kind: ClassVar[str] = "refused"
    title: ClassVar[str] = "The shop refuses"


class ProductNotFound(Refusal):
    status, kind, title = 404, "product-not-found", "There is no such product"

    def __init__(self, product_id: int) -> None:
        super().__init__(f"There is no product {product_id}.")


class OrderNotFound(Refusal):
    status, kind, title = 404, "order-not-found", "There is no such order"

    def __init__(self, order_id: int) -> None:
        super().__init__(f"There is no order {order_id}.")


class NotAllowed(Refusal):
    status, kind, title = 403, "not-allowed", "Not yours to do"


class ProductSold(Refusal):
    status, kind, title = 409, "product-sold", "Somebody was faster"

    def __init__(self, product_id: int) -> None:
        super().__init__(f"Product {product_id} is sold.")


class WrongStatus(Refusal):
    status, kind, title = 409, "wrong-status", "The order has moved on"

    def __init__(self, order_id: int, is_now: str, needed: str) -> None:
        super().__init__(f"Order {order_id} is {is_now}; this needs it to be {needed}.")
