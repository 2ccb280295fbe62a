"""Settings of the project; the database and its driver come from the environment."""

import os
import sys
from importlib.util import find_spec
from urllib.parse import urlsplit

from tidewheel import Retry

SECRET_KEY = "of tests"  # noqa: S105
ROOT_URLCONF = "desk.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ALLOWED_HOSTS = ["testserver"]

if os.environ.get("DESK_DRIVER") == "psycopg2":
    sys.modules["psycopg"] = None  # Django then takes the other one

_place = os.environ["DESK_PLACE"]
if "://" in _place:
    _parts = urlsplit(_place)
    _database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _parts.path.lstrip("/"),
        "USER": _parts.username,
        "HOST": _parts.hostname,
        "PORT": _parts.port,
        "TEST": {"NAME": os.environ["DESK_TEST"]},
    }
else:
    _database = {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": f"{_place}/desk.db",
        "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"},
        "TEST": {"NAME": f"{_place}/test.db"},
    }
DATABASES = {"default": _database}

INSTALLED_APPS = ["desk", "tidewheel.integrations.django"]
if find_spec("django.tasks") is None:
    INSTALLED_APPS.append("django_tasks")

TASKS = {
    "default": {
        "BACKEND": "tidewheel.integrations.django.TidewheelBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {"max_attempts": 3, "retry": Retry.fixed(0), "poll_interval": 0.2},
    },
    "reports": {
        "BACKEND": "tidewheel.integrations.django.TidewheelBackend",
        "QUEUES": ["reports"],
        "OPTIONS": {"max_attempts": 1},
    },
}
