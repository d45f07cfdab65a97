// SPDX-License-Identifier: Apache-2.0

// Package report turns a results.Run into something a person reads: text for
// a terminal, Markdown, one HTML file that needs no network, and a picture.
//
// It works in two steps. The first aggregates: repeats of a point become
// medians with their range, ratios are taken to the baselines, and every
// table, sentence and chart is laid down in a document. The second writes
// that document in one of the forms. No form computes a figure of its own, so
// all of them say the same.
//
// A kind of load chooses the comparisons and the charts. It is a package below kind, which imports model, chart and
// wording, and which only the list of kinds here imports.
package report
