// SPDX-License-Identifier: Apache-2.0

// Package model is what reports are written from: a run's trials summed up by load, subject and parameters; subjects
// ranked by what their repeats tell; tables, targets and the charts that several kinds of loads have. What a kind of
// load compares and draws it is told by a Registration; it knows none of them.
package model
