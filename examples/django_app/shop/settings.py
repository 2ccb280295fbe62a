"""The settings of the shop: what is about Tidewheel stands last."""

import os
from importlib.util import find_spec
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent

SECRET_KEY = "only for this example"  # noqa: S105
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "shop.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

if "PGDATABASE" in os.environ:
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": os.environ["PGDATABASE"],
            "HOST": os.environ.get("PGHOST", ""),
            "PORT": os.environ.get("PGPORT", ""),
            "USER": os.environ.get("PGUSER", ""),
            "PASSWORD": os.environ.get("PGPASSWORD", ""),
        }
    }
else:
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": BASE_DIR / "shop.db",
            # Requests and workers write to one file; each waits for its turn when it begins.
            "OPTIONS": {
                "timeout": 20,
                "transaction_mode": "IMMEDIATE",
                "init_command": "PRAGMA synchronous = FULL",  # what is committed survives power loss
            },
            "TEST": {"NAME": BASE_DIR / "test.db"},  # a worker finds no job in memory
        }
    }

INSTALLED_APPS = ["shop", "tidewheel.integrations.django"]
if find_spec("django.tasks") is None:  # before Django 6.0: the backport
    INSTALLED_APPS.append("django_tasks")

TASKS = {
    "default": {
        "BACKEND": "tidewheel.integrations.django.TidewheelBackend",
        "OPTIONS": {"max_attempts": 5, "timeout": 60},
    }
}
