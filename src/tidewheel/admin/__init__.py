"""Administration: job filters, bulk actions, reports, topic controls, worker info and store copies."""
