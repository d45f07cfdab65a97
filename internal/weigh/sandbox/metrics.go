// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/metrics"
)

// Metrics writes the balancer's metrics whose names begin with prefix, without their descriptions.
func Metrics(ctx context.Context, to io.Writer, prefix string) error {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", config.DefaultSocket)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://jeoul"+metrics.Path, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if line := lines.Text(); strings.HasPrefix(line, prefix) && !strings.HasPrefix(line, "#") {
			fmt.Fprintln(to, line)
		}
	}
	return lines.Err()
}
