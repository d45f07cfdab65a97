// SPDX-License-Identifier: Apache-2.0

// Package components makes the calling program able to be the parts of Kubernetes that a test cluster runs: etcd, the
// API server, the controller manager and kube-proxy, each in a process of its own.
package components

import (
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kubeproxy "k8s.io/kubernetes/cmd/kube-proxy/app"

	// A process of a pod becomes its server while packages are initialized.
	_ "github.com/jeoul/jeoul/test/kubernetes/dnsserver"
	_ "github.com/jeoul/jeoul/test/kubernetes/podserver"
)

// Roles: the first argument of a process that is to be a component. Its flags follow; those of [Etcd] are the data
// directory, the URL for clients and the URL for peers.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Proxy             = "kube-proxy"
)

// Run becomes the component that the first argument names, and does not return then. Programs that start a cluster
// call it before anything else.
func Run() {
	if len(os.Args) < 2 {
		return
	}
	var command *cobra.Command
	switch os.Args[1] {
	case Etcd:
		exit(runEtcd(os.Args[2:]))
	case APIServer:
		command = apiserver.NewAPIServerCommand()
	case ControllerManager:
		command = controllermanager.NewControllerManagerCommand()
	case Proxy:
		command = kubeproxy.NewProxyCommand()
	default:
		return
	}
	command.SetArgs(os.Args[2:])
	os.Exit(cli.Run(command))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runEtcd(arguments []string) error {
	if len(arguments) != 3 {
		return fmt.Errorf("%d arguments; use DIRECTORY CLIENT-URL PEER-URL", len(arguments))
	}
	clients, err := url.Parse(arguments[1])
	if err != nil {
		return err
	}
	peers, err := url.Parse(arguments[2])
	if err != nil {
		return err
	}
	config := embed.NewConfig()
	config.Dir = arguments[0]
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*clients}, []url.URL{*clients}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{*peers}, []url.URL{*peers}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.LogLevel = "warn"
	// Without it, an embedded etcd warns of every request.
	config.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration
	config.LogOutputs = []string{"stderr"}
	// The data need not outlive the machine, and disks of test machines are slow to sync.
	config.UnsafeNoFsync = true
	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	select {
	case <-ended:
		server.Close()
		return nil
	case err := <-server.Err():
		return err
	}
}
