// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/jeoul/jeoul/internal/balancer/health"
)

// grpc calls grpc.health.v1.Health/Check: a POST of one message, by HTTP/2
// (github.com/grpc/grpc, doc/PROTOCOL-HTTP2.md and doc/health-checking.md).
func (a *ask) grpc() health.Answer {
	service := ""
	if a.check.GRPC != nil {
		service = a.check.GRPC.Service
	}
	conn, warning, answer := a.open(true)
	if conn == nil {
		return answer
	}
	defer finish(conn)
	response, end, err := a.exchange2(conn, a.healthRequest(service))
	if err != nil {
		return a.evaluateHTTP(err)
	}
	defer end()
	a.step("request", fmt.Sprintf("grpc.health.v1.Health/Check answered with HTTP status %d", response.StatusCode),
		false)
	message, err := io.ReadAll(io.LimitReader(response.Body, bodyBytes))
	if err != nil {
		return a.evaluateHTTP(err)
	}
	answer = evaluateGRPC(response, message, service)
	if answer.Outcome == health.Passed {
		answer.Reason = warning
	}
	return answer
}

func (a *ask) healthRequest(service string) *http.Request {
	target := &url.URL{Scheme: "http", Host: a.endpoint.String(), Path: "/grpc.health.v1.Health/Check"}
	if a.check.TLS != nil {
		target.Scheme = "https"
		if a.check.TLS.ServerName != "" {
			target.Host = a.check.TLS.ServerName
		}
	}
	body := frame(healthMessage(service))
	request := &http.Request{Method: http.MethodPost, URL: target, Host: target.Host,
		Header: http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "User-Agent": {userAgent}},
		Body:   io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body))}
	return request.WithContext(a.ctx)
}

// healthMessage is a HealthCheckRequest: the service is its field 1.
func healthMessage(service string) []byte {
	if service == "" {
		return nil
	}
	return protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), service)
}

// frame puts a message that is not compressed behind its flag and length.
func frame(message []byte) []byte {
	framed := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	return append(framed, message...)
}

// servingStatus are the values of HealthCheckResponse.ServingStatus.
var servingStatus = []string{"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"}

// callStatus names the statuses of calls that failed (google.rpc.Code).
var callStatus = map[string]string{
	"4": "DEADLINE_EXCEEDED", "5": "NOT_FOUND: it does not know that service", "7": "PERMISSION_DENIED",
	"12": "UNIMPLEMENTED: it does not have grpc.health.v1", "13": "INTERNAL", "14": "UNAVAILABLE",
	"16": "UNAUTHENTICATED",
}

// evaluateGRPC makes an answer of a response whose body has been read.
func evaluateGRPC(response *http.Response, body []byte, service string) health.Answer {
	if response.StatusCode != http.StatusOK {
		return health.Fail(fmt.Sprintf("HTTP status %d", response.StatusCode),
			fmt.Sprintf("answers the gRPC call with HTTP status %d", response.StatusCode))
	}
	code := response.Trailer.Get("Grpc-Status")
	if code == "" {
		code = response.Header.Get("Grpc-Status") // where there is no message
	}
	if code != "0" {
		if code == "" {
			return health.Fail("no gRPC", "does not speak gRPC: its response has no grpc-status")
		}
		name := callStatus[code]
		if name == "" {
			name = "status " + plain(code)
		}
		return health.Fail("gRPC status "+plain(code), "answers the gRPC call with "+name)
	}
	status, err := parseHealth(body)
	if err != nil {
		return health.Fail("no gRPC", "does not speak gRPC: "+err.Error())
	}
	name := fmt.Sprintf("status %d", status)
	if status < uint64(len(servingStatus)) {
		name = servingStatus[status]
	}
	if status == 1 {
		return health.Pass(name)
	}
	if service == "" {
		return health.Fail(name, "says of itself that it is "+name)
	}
	return health.Fail(name, fmt.Sprintf("says that its service %s is %s", plain(service), name))
}

// The errors of parseHealth.
var (
	errFrame      = errors.New("its message is not framed")
	errCompressed = errors.New("its message is compressed, which was not offered")
	errMessage    = errors.New("its message is no HealthCheckResponse")
)

// parseHealth returns the status, field 1, of a framed HealthCheckResponse.
func parseHealth(body []byte) (uint64, error) {
	if len(body) < 5 || uint64(binary.BigEndian.Uint32(body[1:])) != uint64(len(body)-5) {
		return 0, errFrame
	}
	if body[0] != 0 {
		return 0, errCompressed
	}
	status := uint64(0) // a field that is not there has its default
	for message := body[5:]; len(message) > 0; {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return 0, errMessage
		}
		message = message[n:]
		if number == 1 && kind == protowire.VarintType {
			if status, n = protowire.ConsumeVarint(message); n < 0 {
				return 0, errMessage
			}
		} else if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return 0, errMessage
		}
		message = message[n:]
	}
	return status, nil
}
