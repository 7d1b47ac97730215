"""The four texts that people search the logs for. They are frozen: other teams' alerts match them."""

from typing import Final

ALREADY_HANDLED: Final = "事件已处理，忽略重复消息"
UNSUPPORTED_TYPE: Final = "事件类型不支持"
NOT_SENT: Final = "消息发送失败"
NOT_CONSUMED: Final = "消息消费失败"
