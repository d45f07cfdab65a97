// SPDX-License-Identifier: Apache-2.0

package master

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Object is an object that HAProxy keeps statistics of: a section, where Server is "FRONTEND" or "BACKEND", or one of
// its servers.
type Object struct {
	Section string `json:"section"`
	Server  string `json:"server"`
}

// The values of Object.Server for a section.
const (
	Frontend = "FRONTEND"
	Backend  = "BACKEND"
)

// Statistics are the statistics of a worker: numbers by their names in the management guide, section 9.1. Numbers that
// an object lacks are left out.
type Statistics map[Object]map[string]uint64

// allStatistics asks for all sections (-1), frontends, backends and servers (1 + 2 + 4), all of them (-1).
const allStatistics = "show stat -1 7 -1"

// Statistics asks a worker for its statistics.
func (s Socket) Statistics(ctx context.Context, pid int) (Statistics, error) {
	answer, err := s.WorkerCommand(ctx, pid, allStatistics)
	if err != nil {
		return nil, err
	}
	return ParseStatistics(answer)
}

// ParseStatistics reads the answer to "show stat" in CSV.
func ParseStatistics(answer string) (Statistics, error) {
	answer, ok := strings.CutPrefix(answer, "# ")
	if !ok {
		return nil, fmt.Errorf("%w: it does not begin with the fields' names: %.80q", ErrAnswer, answer)
	}
	lines := csv.NewReader(strings.NewReader(answer))
	lines.FieldsPerRecord = -1
	lines.ReuseRecord = true
	lines.LazyQuotes = true
	record, err := lines.Read()
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrAnswer, err)
	}
	names := append([]string(nil), record...)
	if len(names) < 2 || names[0] != "pxname" || names[1] != "svname" {
		return nil, fmt.Errorf("%w: its first fields are not pxname and svname", ErrAnswer)
	}
	all := Statistics{}
	for {
		record, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %v", ErrAnswer, err)
		}
		if len(record) >= 2 {
			all[Object{strings.Clone(record[0]), strings.Clone(record[1])}] = numbers(names[2:], record[2:])
		}
	}
}

// wanted are the fields to keep.
var wanted = map[string]bool{
	"qcur": true, "scur": true, "stot": true, "bin": true, "bout": true, "dreq": true, "econ": true, "wretr": true,
	"wredis":   true,
	"hrsp_1xx": true, "hrsp_2xx": true, "hrsp_3xx": true, "hrsp_4xx": true, "hrsp_5xx": true, "hrsp_other": true,
	"req_tot": true, "conn_tot": true, "dcon": true, "dses": true, "connect": true,
}

func numbers(names, values []string) map[string]uint64 {
	kept := make(map[string]uint64, len(wanted))
	for i, name := range names {
		if i >= len(values) || !wanted[name] {
			continue
		}
		if n, err := strconv.ParseUint(values[i], 10, 64); err == nil {
			kept[name] = n
		}
	}
	return kept
}
