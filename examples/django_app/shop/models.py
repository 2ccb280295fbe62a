"""What the shop knows."""

from django.db import models


class Order(models.Model):
    """Somebody wants something."""

    item = models.CharField(max_length=100)
    confirmed = models.BooleanField(default=False)
