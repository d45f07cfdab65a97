// SPDX-License-Identifier: Apache-2.0

// Package model holds the data that reports are written from: a run's trials summed up by load, subject and parameters;
// subjects ranked by their repeats; tables, targets and the charts that several kinds of loads have. A Registration
// defines which figures a kind of load compares and draws; this package depends on none of the kinds.
package model
