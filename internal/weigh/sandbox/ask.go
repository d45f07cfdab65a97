// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// VIP is the address of the sandbox's service, from package lab's address plan.
var VIP = netip.MustParseAddrPort("198.18.0.100:80")

// answerTimeout is how long an answer may take.
const answerTimeout = 3 * time.Second

// answer sends one request, on a new connection, from the network namespace of the calling thread, and returns the name
// of the server that answered.
func answer(ctx context.Context, at netip.AddrPort) (name string, err error) {
	connection, err := (&net.Dialer{Timeout: answerTimeout}).DialContext(ctx, "tcp", at.String())
	if err != nil {
		return "", err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.String()+"/", nil)
	if err != nil {
		return "", err
	}
	request.Close = true
	if err := request.Write(connection); err != nil {
		return "", err
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	name, _, _ = strings.Cut(string(body), " ")
	return name, err
}

// Ask sends a number of requests through the balancer, and writes a line for each web server with the number of its
// answers. The error is that of the last request without an answer.
func Ask(ctx context.Context, to io.Writer, at netip.AddrPort, times int) error {
	counts := map[string]int{}
	var failed error
	for range times {
		name, err := answer(ctx, at)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			counts[unanswered]++
			failed = err
			continue
		}
		counts[name]++
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(to, "%-10s %3d %s\n", name, counts[name], strings.Repeat("#", min(counts[name], 60)))
	}
	if failed != nil {
		return fmt.Errorf("%d of %d requests got no answer: %w", counts[unanswered], times, failed)
	}
	return nil
}

// unanswered stands for requests without an answer.
const unanswered = "(none)"

// counted reads the output of Ask.
func counted(text string) (map[string]int, error) {
	counts := map[string]int{}
	for line := range strings.Lines(text) {
		var name string
		var n int
		if _, err := fmt.Sscan(line, &name, &n); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		counts[name] = n
	}
	if len(counts) == 0 {
		return nil, errors.New("no web server answered")
	}
	return counts, nil
}
