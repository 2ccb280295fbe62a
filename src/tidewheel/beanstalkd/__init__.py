"""The beanstalkd door: every beanstalkd client becomes a client of a durable queue.

Its tubes are topics; nothing else in Tidewheel knows the word.
"""
