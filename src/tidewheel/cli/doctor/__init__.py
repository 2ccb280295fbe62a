"""``tidewheel doctor``: whether the store is well, and whether the promises hold on it."""
