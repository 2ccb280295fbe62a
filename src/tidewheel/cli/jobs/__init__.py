"""``tidewheel jobs``: looking at jobs and acting on them."""
