// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/test/kubernetes/podserver"
)

// askTimeout bounds one request. It is longer than the kernel takes to send a lost SYN twice.
const askTimeout = 5 * time.Second

// ask sends a request to a pod server by TCP, in a connection of its own, or in a datagram. It runs in the thread's
// namespace.
func ask(network string, to netip.AddrPort, timeout time.Duration) (podserver.Answer, error) {
	connection, err := net.DialTimeout(network, to.String(), timeout)
	if err != nil {
		return podserver.Answer{}, err
	}
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(timeout))
	return request(network, connection, bufio.NewReader(connection), "close")
}

// request asks over an open connection.
func request(network string, connection net.Conn, reader *bufio.Reader, after string) (podserver.Answer, error) {
	var answer podserver.Answer
	if network == "udp" {
		if _, err := connection.Write([]byte("who")); err != nil {
			return answer, err
		}
		buffer := make([]byte, 2048)
		n, err := reader.Read(buffer)
		if err != nil {
			return answer, err
		}
		return answer, json.Unmarshal(buffer[:n], &answer)
	}
	if _, err := fmt.Fprintf(connection, "GET / HTTP/1.1\r\nHost: pods\r\nConnection: %s\r\n\r\n", after); err != nil {
		return answer, err
	}
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		return answer, err
	}
	defer response.Body.Close()
	return answer, json.NewDecoder(response.Body).Decode(&answer)
}

// askFrom is ask from a host.
func askFrom(host *lab.Host, network string, to netip.AddrPort, timeout time.Duration) (podserver.Answer, error) {
	var answer podserver.Answer
	err := host.Do(func() (err error) {
		answer, err = ask(network, to, timeout)
		return err
	})
	return answer, err
}

// tally counts the answers to many connections.
type tally struct {
	mu      sync.Mutex
	pods    map[string]int
	nodes   map[string]int
	clients map[string]int
	failed  []error
}

func newTally() *tally {
	return &tally{pods: map[string]int{}, nodes: map[string]int{}, clients: map[string]int{}}
}

func (t *tally) add(answer podserver.Answer, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.failed = append(t.failed, err)
		return
	}
	t.pods[answer.Pod]++
	t.nodes[answer.Node]++
	t.clients[clientOf(answer).String()]++
}

func clientOf(answer podserver.Answer) netip.Addr {
	client, err := netip.ParseAddrPort(answer.Client)
	if err != nil {
		return netip.Addr{}
	}
	return client.Addr().Unmap()
}

// connect makes n connections from a host, some at a time, and returns who answered.
func connect(host *lab.Host, to netip.AddrPort, n int) *tally {
	const workers = 8
	t := newTally()
	var running sync.WaitGroup
	for i := range workers {
		running.Go(func() {
			err := host.Do(func() error {
				for k := i; k < n; k += workers {
					t.add(ask("tcp", to, askTimeout))
				}
				return nil
			})
			if err != nil {
				t.add(podserver.Answer{}, err)
			}
		})
	}
	running.Wait()
	return t
}

// awaitAnswer asks until there is an answer: kube-proxy writes its rules within a second or so.
func (s *scope) awaitAnswer(from *lab.Host, network string, to netip.AddrPort) (answer podserver.Answer) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("%s answers by %s", to, network), func() bool {
		var err error
		answer, err = askFrom(from, network, to, time.Second)
		return err == nil
	})
	return answer
}
