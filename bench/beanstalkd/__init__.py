"""``tidewheel beanstalkd`` beside beanstalkd: how fast clients put jobs, and reserve and delete them."""
