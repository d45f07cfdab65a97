// SPDX-License-Identifier: Apache-2.0

// Package dnsserver is the program of test pods that answer DNS: a server that answers each question by the address
// that the question came from, as CoreDNS does with its plug-in whoami.
//
// A process whose first argument is [Role] becomes the server while its packages are initialized; package podserver
// says why.
package dnsserver

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/net/dns/dnsmessage"
)

// Role is the first argument of a process that is to be the server.
const Role = "dns-server"

const port = 53

func init() {
	if len(os.Args) < 2 || os.Args[1] != Role {
		return
	}
	fmt.Fprintln(os.Stderr, "DNS server:", serve())
	os.Exit(1)
}

func serve() error {
	packets, err := net.ListenUDP("udp", &net.UDPAddr{Port: port})
	if err != nil {
		return err
	}
	buffer := make([]byte, 4096)
	for {
		n, from, err := packets.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return err
		}
		if reply, err := answer(buffer[:n], from.Addr().Unmap()); err == nil {
			packets.WriteToUDPAddrPort(reply, from)
		}
	}
}

// answer returns the reply to a query of a client.
func answer(query []byte, client netip.Addr) ([]byte, error) {
	var parser dnsmessage.Parser
	header, err := parser.Start(query)
	if err != nil {
		return nil, err
	}
	question, err := parser.Question()
	if err != nil {
		return nil, err
	}
	header.Response, header.Authoritative = true, true
	made := dnsmessage.NewBuilder(nil, header)
	if err := made.StartQuestions(); err != nil {
		return nil, err
	}
	if err := made.Question(question); err != nil {
		return nil, err
	}
	if err := made.StartAnswers(); err != nil {
		return nil, err
	}
	resource := dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET}
	if question.Type == dnsmessage.TypeA && client.Is4() {
		err = made.AResource(resource, dnsmessage.AResource{A: client.As4()})
	} else if question.Type == dnsmessage.TypeAAAA && client.Is6() {
		err = made.AAAAResource(resource, dnsmessage.AAAAResource{AAAA: client.As16()})
	}
	if err != nil {
		return nil, err
	}
	return made.Finish()
}
