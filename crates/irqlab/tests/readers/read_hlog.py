"""Prints what the HdrHistogram reader reads from a log, as JSON."""
import json
import sys

from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

reader = HistogramLogReader(sys.argv[1], HdrHistogram(1, 2**40, 3))
found = []
while (one := reader.get_next_interval_histogram()) is not None:
    found.append({
        "tag": one.get_tag(),
        "count": one.get_total_count(),
        "p50": one.get_value_at_percentile(50),
        "p99": one.get_value_at_percentile(99),
        "length_ms": one.get_end_time_stamp() - one.get_start_time_stamp(),
    })
json.dump(found, sys.stdout)
