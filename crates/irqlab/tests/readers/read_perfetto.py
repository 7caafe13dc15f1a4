"""Prints what Perfetto's published schema reads from a trace, as JSON: tracks, slices, arrows and counters."""
import json
import sys

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

trace = schema.Trace()
trace.ParseFromString(open(sys.argv[1], "rb").read())
tracks, slices, counters, stacks = {}, [], [], {}
arrows = {"starts": [], "ends": []}
for packet in trace.packet:
    for message in (packet, packet.track_descriptor, packet.track_event):
        assert len(UnknownFieldSet(message)) == 0, message
    if packet.HasField("track_descriptor"):
        track = packet.track_descriptor
        tracks[track.uuid] = {"name": track.name, "parent": track.parent_uuid,
                              "unit": track.counter.unit_name}
        continue
    event = packet.track_event
    stack = stacks.setdefault(event.track_uuid, [])
    if event.type == schema.TrackEvent.TYPE_SLICE_BEGIN:
        details = {one.name: one.uint_value for one in event.debug_annotations}
        for side, numbers in (("starts", event.flow_ids), ("ends", event.terminating_flow_ids)):
            arrows[side] += [[number, event.name, packet.timestamp] for number in numbers]
        stack.append([event.name, list(event.categories), packet.timestamp, details])
    elif event.type == schema.TrackEvent.TYPE_SLICE_END:
        name, kinds, start, details = stack.pop()
        track = tracks[event.track_uuid]
        slices.append({"name": name, "kinds": kinds, "start_ns": start, "track": track["name"],
                       "length_ns": packet.timestamp - start, "details": details,
                       "group": tracks[track["parent"]]["name"]})
    else:
        assert event.type == schema.TrackEvent.TYPE_COUNTER
        counters.append([tracks[event.track_uuid]["unit"], packet.timestamp, event.counter_value])
assert not any(stacks.values())
json.dump({"tracks": list(tracks.values()), "slices": slices, "arrows": arrows,
           "counters": counters}, sys.stdout)
