"""Cron expressions and time zones as fields of a spec. Data only: when times are is ``worlds.cron``'s business."""

from __future__ import annotations


def _list_of(value: str) -> str:
    item = rf"(\*|{value}(-{value})?)(/[1-9][0-9]?)?"
    return f"{item}(,{item})*"


_MONTHS = "(0?[1-9]|1[0-2]|(?i:JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC))"
_DAYS = "([0-7]|(?i:SUN|MON|TUE|WED|THU|FRI|SAT))"
_VALUES = ("[0-5]?[0-9]", "([01]?[0-9]|2[0-3])", "(0?[1-9]|[12][0-9]|3[01])", _MONTHS, _DAYS)
SCHEDULE = f"^({' +'.join(map(_list_of, _VALUES))}|@(yearly|annually|monthly|weekly|daily|midnight|hourly))$"
SCHEDULE_HELP = (
    "must have five cron fields such as '*/15 * * * *' or '30 2 * * MON-FRI', or be one of @hourly, @daily, @weekly, "
    "@monthly, @yearly"
)
TIME_ZONE = "^[A-Za-z0-9_+/-]+$"
TIME_ZONE_HELP = "must be the name of a time zone, such as UTC or Europe/Berlin"
