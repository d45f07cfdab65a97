// SPDX-License-Identifier: Apache-2.0

package transact

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench/load"
)

// Netperf is a test that netperf itself makes, over one stream. Its control connection and its data connection must
// reach the same server, so each has a port that leads to that one server.
type Netperf struct {
	Kind
	// DataPort is the port of the measured connections. A share's target has the port of the control connection.
	DataPort uint16
}

// NetperfProgram is the client's program, NetserverProgram the server's.
const (
	NetperfProgram   = "netperf"
	NetserverProgram = "netserver"
)

// netperfColumns are the columns of netperf's output, in this order (netperf's manual, "Omni Output Selectors");
// latencies are in microseconds.
var netperfColumns = []string{"THROUGHPUT", "ELAPSED_TIME", "MIN_LATENCY", "MEAN_LATENCY", "P50_LATENCY", "P90_LATENCY",
	"P99_LATENCY", "MAX_LATENCY"}

// Netserver returns the command line of a server, in the foreground.
func Netserver(at netip.AddrPort) []string {
	return []string{NetserverProgram, "-D", "-4", "-p", strconv.Itoa(int(at.Port()))}
}

func init() { load.Register(Netperf{}) }

// Name returns the program's name.
func (Netperf) Name() string { return NetperfProgram }

// VersionFlag returns the argument that makes netperf print its version.
func (Netperf) VersionFlag() string { return "-V" }

// Prepare needs no files.
func (k Netperf) Prepare(share load.Share) ([]string, error) {
	return []string{NetperfProgram, "-4", "-H", share.Target.Addr().String(), "-p",
		strconv.Itoa(int(share.Target.Port())),
		"-t", strings.ToUpper(string(k.Test)), "-l", strconv.Itoa(int(share.Duration.Seconds())), "-P", "0",
		"--", "-P", "," + strconv.Itoa(int(k.DataPort)), "-o", strings.Join(netperfColumns, ",")}, nil
}

// Parse reads the one line that netperf prints. Its latencies are known by a few percentiles only, so transactions are
// spread evenly between those.
func (Netperf) Parse(_ load.Share, stdout []byte) (*load.Outcome, error) {
	text := bytes.TrimSpace(stdout)
	// Warnings may precede the line.
	line := text[bytes.LastIndexByte(text, '\n')+1:]
	record, err := csv.NewReader(bytes.NewReader(line)).Read()
	if err != nil || len(record) != len(netperfColumns) {
		return nil, fmt.Errorf("%w: netperf printed %.100q", load.ErrOutput, line)
	}
	values := map[string]float64{}
	for i, name := range netperfColumns {
		value, err := strconv.ParseFloat(record[i], 64)
		if err != nil || !(value >= 0 && value < 1e12) {
			return nil, fmt.Errorf("%w: netperf's %s is %.100q", load.ErrOutput, name, record[i])
		}
		values[name] = value
	}
	count := int64(values["THROUGHPUT"]*values["ELAPSED_TIME"] + 0.5)
	if count < 0 || count > 1e12 {
		return nil, fmt.Errorf("%w: netperf claims %d transactions", load.ErrOutput, count)
	}
	latency, err := load.LatencyOf(map[float64]float64{
		0: values["MIN_LATENCY"], 50: values["P50_LATENCY"], 90: values["P90_LATENCY"], 99: values["P99_LATENCY"],
		100: values["MAX_LATENCY"],
	}, values["MEAN_LATENCY"], count)
	if err != nil {
		return nil, fmt.Errorf("%w: netperf's latencies: %w", load.ErrOutput, err)
	}
	return &load.Outcome{Requests: uint64(count), Latency: latency,
		Taken: time.Duration(values["ELAPSED_TIME"] * float64(time.Second))}, nil
}
