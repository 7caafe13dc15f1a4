"""Prints what the OpenMetrics parser of prometheus_client reads from a file, as JSON."""
import json
import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families

families = {}
for family in text_string_to_metric_families(open(sys.argv[1], encoding="utf-8").read()):
    samples = [[one.name, one.labels, one.value, one.timestamp and float(one.timestamp)]
               for one in family.samples]
    families[family.name] = {"type": family.type, "unit": family.unit, "samples": samples}
json.dump(families, sys.stdout)
