// Package capacity models the free capacity of a node and whether a request fits
// there. The scheduler places work with it, forecasts simulate with it, and the
// API counts machine types with it.
//
// It is not for policy: it does not choose between nodes or between devices.
// The state machine does not use it either. It checks each assignment by its
// own rules, so that a mistake here cannot give a GPU away twice.
//
// Rules: everything is deterministic and counts in integers. A Node is a
// scratch copy of one record. Take and Put change the copy, never the record.
package capacity
