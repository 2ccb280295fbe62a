"""Conversations with a real beanstalkd, which ``tidewheel beanstalkd`` must answer in the same words.

``conversations/`` has them as text. Replies in there are those of the real one: the suite plays every
conversation against it, too, and ``python -m tests.beanstalkd`` writes them anew.
"""
