"""What a person on call looks at and does, in a browser. Needs the extra `dashboard`.

`postroad dashboard shop:road` serves it; `dashboard_app(road, authorize=…)` is the same as an ASGI application.
All it shows and does comes from `postroad.operations`, and is also under `/api`.
"""

from postroad.dashboard.access import Authorize, Role, User
from postroad.dashboard.app import dashboard_app

__all__ = ["Authorize", "Role", "User", "dashboard_app"]
