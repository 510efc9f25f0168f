"""Fitted models as ONNX graphs: rows of the table in, probabilities and decisions out.

The modules of this package need onnx, the extra ``gcig[onnx]``; `gcig.methods.onnx_export` asks for it.
"""
