// SPDX-License-Identifier: Apache-2.0

// Package podserver is the program of test pods: an HTTP server that answers who it is and whom it sees, for
// programs to read.
//
// A process whose first argument is [Role] becomes the server while its packages are initialized. Go initializes
// packages in the order of their import paths where dependencies leave a choice, so those of Kubernetes, which sort
// behind this one and cost each process tens of megabytes and a tenth of a second, are never initialized in a pod.
package podserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

// Role is the first argument of a process that is to be the server.
const Role = "pod-server"

// Environment variables of the server.
const (
	// NameVariable holds the pod's name.
	NameVariable = "POD_NAME"
	// NodeVariable holds the node's name.
	NodeVariable = "NODE_NAME"
	// PortVariable holds the port of HTTP; DefaultPort where it is not set.
	PortVariable = "PORT"
	// LingerVariable holds for how long no new connection must have come after SIGTERM before the server takes no more
	// of them, such as 500ms; DefaultLinger where it is not set.
	LingerVariable = "LINGER"
)

// DefaultLinger is longer than the second in which kube-proxy hears of the end of a pod and writes its rules. Where it
// takes longer, connections go on to come, and the server to take them.
const DefaultLinger = 5 * time.Second

// DefaultPort is the port that the server listens on, by TCP with HTTP and by UDP with plain datagrams.
const DefaultPort = 8080

// Answer is the JSON document that answers every request but those below.
//
//	/healthz   200 while the server is not ending, then 503
//	/readyz    200, or 503 after POST /unready; POST /ready brings 200 back
type Answer struct {
	Pod  string `json:"pod"`
	Node string `json:"node"`
	// Client is the address and port of the client as the pod sees it.
	Client string `json:"client"`
	// Terminating: the pod has received SIGTERM.
	Terminating bool `json:"terminating,omitempty"`
}

func init() {
	if len(os.Args) < 2 || os.Args[1] != Role {
		return
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "pod server:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

type server struct {
	name, node  string
	unready     atomic.Bool
	terminating atomic.Bool
	// open counts the open connections.
	open atomic.Int64
	// idle receives a value when a connection ends.
	idle chan struct{}
	// met receives a value when a connection begins.
	met chan struct{}
}

func serve() error {
	port := DefaultPort
	if text := os.Getenv(PortVariable); text != "" {
		var err error
		if port, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("read %s: %w", PortVariable, err)
		}
	}
	linger := DefaultLinger
	if text := os.Getenv(LingerVariable); text != "" {
		var err error
		if linger, err = time.ParseDuration(text); err != nil {
			return fmt.Errorf("read %s: %w", LingerVariable, err)
		}
	}
	s := &server{name: os.Getenv(NameVariable), node: os.Getenv(NodeVariable), idle: make(chan struct{}, 1),
		met: make(chan struct{}, 1)}
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	packets, err := net.ListenPacket("udp", fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	go s.answerDatagrams(packets)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	web := &http.Server{Handler: s.routes(), ConnState: s.count}
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ended:
		return s.drain(listener, linger, failed)
	}
}

// drain goes on to serve, new connections too, until none has come for a while, since nodes and balancers hear of the
// end of a pod later than the pod does. Then it closes the port, and returns when the last connection has ended; the
// kubelet may kill the process before, at the end of the grace period.
func (s *server) drain(listener net.Listener, linger time.Duration, failed <-chan error) error {
	s.terminating.Store(true)
	quiet := time.NewTimer(linger)
	for remaining := true; remaining; {
		select {
		case err := <-failed:
			return err
		case <-s.met:
			quiet.Reset(linger)
		case <-quiet.C:
			remaining = false
		}
	}
	listener.Close() // the connections go on
	for s.open.Load() > 0 {
		<-s.idle
	}
	return nil
}

func (s *server) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.open.Add(1)
		notify(s.met)
	case http.StateClosed, http.StateHijacked:
		s.open.Add(-1)
		notify(s.idle)
	}
}

// notify sends a value, unless one waits to be received.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *server) routes() http.Handler {
	routes := http.NewServeMux()
	status := func(w http.ResponseWriter, ok bool) {
		if !ok {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	routes.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { status(w, !s.terminating.Load()) })
	routes.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { status(w, !s.unready.Load()) })
	routes.HandleFunc("POST /ready", func(http.ResponseWriter, *http.Request) { s.unready.Store(false) })
	routes.HandleFunc("POST /unready", func(http.ResponseWriter, *http.Request) { s.unready.Store(true) })
	routes.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(s.answer(r.RemoteAddr))
	})
	return routes
}

func (s *server) answer(client string) Answer {
	return Answer{Pod: s.name, Node: s.node, Client: client, Terminating: s.terminating.Load()}
}

func (s *server) answerDatagrams(packets net.PacketConn) {
	buffer := make([]byte, 2048)
	for {
		_, from, err := packets.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		if text, err := json.Marshal(s.answer(from.String())); err == nil {
			packets.WriteTo(text, from)
		}
	}
}
