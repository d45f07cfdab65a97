// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestDashboardIsServed: the link that `jeoul dashboard` prints leads to the page, and its token to the balancer's
// status.
func TestDashboardIsServed(t *testing.T) {
	s := newDashboardLab(t, entry{})
	at, token, _ := strings.Cut(s.url, "/#token=")
	for path, want := range map[string]int{"/": http.StatusOK, "/dashboard/main.js": http.StatusOK,
		"/v1/status": http.StatusUnauthorized} {
		response, err := http.Get(at + path)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %s, want %d: %s", path, response.Status, want, text)
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at+"/v1/watch?all=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewReader(response.Body)
	for line := ""; line != "event: status\n"; {
		if line, err = lines.ReadString('\n'); err != nil {
			t.Fatalf("%s: there was no status: %v", response.Status, err)
		}
	}
	status, err := lines.ReadString('\n')
	for _, server := range s.Servers {
		if !strings.Contains(status, fmt.Sprintf("%q", server.IPv4.String())) {
			t.Errorf("the status has not %s (%v): %s", server.IPv4, err, status)
		}
	}
}

// TestDashboardNeedsAPort: if another program has the port, the command names the remedy.
func TestDashboardNeedsAPort(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	var errs bytes.Buffer
	if code := execute(t.Context(), []string{"dashboard", "--port", port}, io.Discard, &errs); code != exitError ||
		!strings.Contains(errs.String(), "--port") {
		t.Errorf("status %d, %q; want %d, and what to do", code, errs.String(), exitError)
	}
}
